// Package lanes measures one lane of plane quic, both ends in this process over loopback.
package lanes
