// Package planemetrics exports what the programs know of their plane beside its counters. It stands apart from
// planeflags so that whoever only reads flags does not pull in Prometheus.
package planemetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

var settingInfo = prometheus.NewDesc("laneway_setting_info",
	"1 for each transport setting; the labels say what was asked for and what is in force. Where sockets differ, "+
		"in_force says from least to most.",
	[]string{"setting", "asked", "in_force"}, nil)

// Settings exports the transport settings of a node, one series each; inForce is asked when they are scraped.
func Settings(inForce func() []planeflags.Setting) prometheus.Collector { return settings{inForce} }

type settings struct{ inForce func() []planeflags.Setting }

// Describe implements prometheus.Collector.
func (settings) Describe(ch chan<- *prometheus.Desc) { ch <- settingInfo }

// Collect implements prometheus.Collector.
func (c settings) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.inForce() { // a file's name need not be UTF-8, a label must
		text := func(v string) string { return strings.ToValidUTF8(v, "\uFFFD") }
		ch <- prometheus.MustNewConstMetric(settingInfo, prometheus.GaugeValue, 1, s.Name, text(s.Asked),
			text(s.InForce))
	}
}
