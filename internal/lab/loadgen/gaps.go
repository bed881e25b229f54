package loadgen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// GapsFile holds the gaps between chunks of a run's raw window: an HDR histogram of nanoseconds (V2, compressed,
// base64). Rows hold no gaps, so `loadgen merge` needs it for their percentiles.
const GapsFile = "gaps.json"

type gapsJSON struct {
	Raw string `json:"raw"`
}

func writeGaps(dir string, h *hdrhistogram.Histogram) error {
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return fmt.Errorf("%s: %w", GapsFile, err)
	}
	b, err := json.Marshal(gapsJSON{Raw: string(enc)})
	if err != nil {
		return fmt.Errorf("%s: %w", GapsFile, err)
	}
	return os.WriteFile(filepath.Join(dir, GapsFile), append(b, '\n'), 0o644)
}

// readGaps returns nil when the directory has none.
func readGaps(dir string) (*hdrhistogram.Histogram, error) {
	path := filepath.Join(dir, GapsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var j gapsJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := hdrhistogram.Decode([]byte(j.Raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}
