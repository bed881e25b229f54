package planebackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/responseplane"
)

// TestEveryEndIsTranslated holds that no kind and no code of the plane gets lost on its way to the HTTP side.
func TestEveryEndIsTranslated(t *testing.T) {
	kinds := []responseplane.EndKind{responseplane.EndFailed, responseplane.EndStopped, responseplane.EndKilled,
		responseplane.EndRefused,
		responseplane.EndDeadline, responseplane.EndLost, responseplane.EndProtocol}
	codes := []responseplane.Code{responseplane.CodeNone, responseplane.CodeInternal, responseplane.CodeValidation,
		responseplane.CodeNotFound,
		responseplane.CodeBusy, responseplane.CodeDraining, responseplane.CodeNoWorker, responseplane.CodeUnsupported,
		responseplane.CodeBadRequest, responseplane.CodeTooLarge}
	for _, k := range kinds {
		for _, c := range codes {
			in := &responseplane.Error{Kind: k, Code: c, Text: "because", Worker: "w"}
			var out *frontend.EndError
			if err := EndError(fmt.Errorf("wrapped: %w", in)); !errors.As(err, &out) || !errors.Is(err, in) {
				t.Fatalf("%v: %v", in, err)
			}
			if out.End != k.String() || out.Code != c.String() || out.Text != "because" || out.Worker != "w" {
				t.Errorf("%v became %+v", in, out)
			}
		}
	}
	for _, err := range []error{io.EOF, context.Canceled} {
		if got := EndError(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if out, ok := errors.AsType[*frontend.EndError](EndError(&responseplane.Error{Kind: 99})); !ok ||
		out.End != frontend.EndProtocol {
		t.Errorf("an unknown kind became %+v", out)
	}
}
