package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Sizes in bytes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
	TiB = 1 << 40
)

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

var errSize = errors.New("is not a size: use a whole number with KiB, MiB or GiB (8MiB), or plain bytes")

// ParseSize reads "8MiB", "64KiB" or plain bytes. Only whole numbers and powers of 1024 are taken: MB and K mean
// different things to different people.
func ParseSize(s string) (int64, error) {
	digits, factor := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if n := len(digits) - len(u.suffix); n > 0 && strings.EqualFold(digits[n:], u.suffix) {
			digits, factor = strings.TrimSpace(digits[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || (err == nil && (n > math.MaxInt64/factor || n < math.MinInt64/factor)):
		return 0, errors.New("is too large for a size: the limit is 8388607TiB")
	case err != nil:
		return 0, errSize
	}
	return n * factor, nil
}

// FormatSize writes a size as ParseSize reads it, with the largest unit that leaves a whole number.
func FormatSize(n int64) string {
	if n != 0 {
		for _, u := range sizeUnits {
			if u.bytes > 1 && n%u.bytes == 0 {
				return strconv.FormatInt(n/u.bytes, 10) + u.suffix
			}
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatDuration writes a duration without empty parts: 10m, not 10m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
