//go:build race

package quic

const raceDetector = true
