package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// soon is how long before its end a certificate is warned about.
const soon = 14 * 24 * time.Hour

// checkCertificates looks at the files that flags name: --X-ca, --X-cert with --X-key, each also with -file at the end.
func checkCertificates(r *Report, values map[string]string, now time.Time) {
	for _, flag := range slices.Sorted(maps.Keys(values)) {
		path := values[flag]
		if path == "" {
			continue
		}
		kind, file := strings.CutSuffix(flag, "-file")
		switch {
		case strings.HasSuffix(kind, "-ca"):
			checkAuthorities(r, flag, path, now)
		case strings.HasSuffix(kind, "-cert"):
			key := strings.TrimSuffix(kind, "-cert") + "-key"
			if file {
				key += "-file"
			}
			checkPair(r, flag, path, key, values[key], now)
		}
	}
}

func checkAuthorities(r *Report, flag, path string, now time.Time) {
	check := "--" + flag + " " + path
	certs, err := readCertificates(path)
	if err != nil {
		r.fail(check, err.Error(), readFix(err))
		return
	}
	good := 0
	for _, c := range certs {
		if judgeTime(r, check, c, now) {
			good++
		}
		if !c.IsCA {
			r.warn(check, fmt.Sprintf("%s is not the certificate of an authority", c.Subject),
				"name the file of the authority that signed it")
		}
	}
	if good > 0 {
		r.ok(check, "%d authorities", good)
	}
}

func checkPair(r *Report, flag, path, keyFlag, keyPath string, now time.Time) {
	check := "--" + flag + " " + path
	certs, err := readCertificates(path)
	if err != nil {
		r.fail(check, err.Error(), readFix(err))
		return
	}
	if keyPath == "" {
		return // the program's own checks say that both go together
	}
	if _, err := os.ReadFile(keyPath); err != nil {
		r.fail("--"+keyFlag+" "+keyPath, err.Error(), readFix(err))
		return
	}
	if _, err := tls.LoadX509KeyPair(path, keyPath); err != nil {
		r.fail(check, fmt.Sprintf("does not go with --%s %s: %v", keyFlag, keyPath, err),
			"name the key that the certificate was made for")
		return
	}
	if judgeTime(r, check, certs[0], now) {
		r.ok(check, "%s, until %s, with its key", certs[0].Subject, certs[0].NotAfter.Format(time.DateOnly))
	}
	if st, err := os.Stat(keyPath); err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o004 != 0 {
		r.warn("--"+keyFlag+" "+keyPath, "every user of this machine may read it", "chmod 600 "+keyPath)
	}
}

// judgeTime tells whether a certificate may be used now.
func judgeTime(r *Report, check string, c *x509.Certificate, now time.Time) bool {
	switch {
	case now.After(c.NotAfter):
		r.fail(check, fmt.Sprintf("%s ran out at %s", c.Subject, c.NotAfter.Format(time.RFC3339)), "renew it")
		return false
	case now.Before(c.NotBefore):
		r.fail(check, fmt.Sprintf("%s holds from %s on only", c.Subject, c.NotBefore.Format(time.RFC3339)),
			"wait, or set this machine's clock")
		return false
	case c.NotAfter.Sub(now) < soon:
		r.warn(check, fmt.Sprintf("%s runs out at %s", c.Subject, c.NotAfter.Format(time.RFC3339)), "renew it")
	}
	return true
}

var errNoCertificate = errors.New("holds no PEM certificate")

func readCertificates(path string) ([]*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errNoCertificate
	}
	return out, nil
}

func readFix(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "name a file that is there"
	case errors.Is(err, fs.ErrPermission):
		return "let this user read it"
	}
	return "name a file with PEM certificates"
}
