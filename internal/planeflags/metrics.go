package planeflags

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

var settingInfo = prometheus.NewDesc("laneway_setting_info",
	"1 for each transport setting; the labels say what was asked for and what is in force. Where sockets differ, in_force says from least to most.",
	[]string{"setting", "asked", "in_force"}, nil)

// NewCollector exports the settings of a node, one series each; inForce is asked when they are scraped.
func NewCollector(inForce func() []Setting) prometheus.Collector { return collector{inForce} }

type collector struct{ inForce func() []Setting }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) { ch <- settingInfo }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.inForce() { // a file's name need not be UTF-8, a label must
		text := func(v string) string { return strings.ToValidUTF8(v, "\uFFFD") }
		ch <- prometheus.MustNewConstMetric(settingInfo, prometheus.GaugeValue, 1, s.Name, text(s.Asked), text(s.InForce))
	}
}
