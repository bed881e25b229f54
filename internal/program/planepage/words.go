package planepage

import (
	"fmt"
	"strconv"
	"time"

	"github.com/laneway-ai/laneway/internal/program/chart"
)

func thousands[T int | int64 | uint64](n T) string { return chart.Thousands(fmt.Sprint(n)) }

// size writes bytes with a unit that leaves at most four digits.
func size[T int | int64 | uint64](n T) string {
	v, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 || v >= 100 {
		return fmt.Sprintf("%.0f %s", v, units[unit])
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[unit]
}

// span writes a duration with three digits or so.
func span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// rate writes events a second.
func rate(perSecond float64) string {
	if perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return chart.Thousands(strconv.FormatFloat(perSecond, 'f', 0, 64))
}

// count writes a number and its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

const stamp = "2006-01-02 15:04:05.000 MST"
