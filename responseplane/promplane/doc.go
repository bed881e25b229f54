// Package promplane exports the response plane's counters to Prometheus. It is the only package of the library that
// knows client_golang, so that embedding the plane does not pull it in.
//
// Nothing here runs per record: a scrape reads one snapshot (responseplane.Stats) and what the transports have counted,
// and that is all.
package promplane
