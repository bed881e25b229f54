package tracing

import (
	"log/slog"

	"github.com/go-logr/logr"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// library takes what the OpenTelemetry library says of the standard's variables. By itself it writes to standard error,
// and quotes values whole: endpoints with passwords, headers with keys. Here it says what it did not like, not what
// that was.
type library struct{ log *slog.Logger }

var _ logr.LogSink = library{}

// Init implements logr.LogSink.
func (library) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: only errors are taken.
func (library) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (library) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (l library) Error(err error, msg string, _ ...any) {
	l.log.Warn("a setting of the traces (OTEL_...) is not used", "step", msg, "error", redact.Error(err))
}

// WithValues implements logr.LogSink.
func (l library) WithValues(...any) logr.LogSink { return l }

// WithName implements logr.LogSink.
func (l library) WithName(string) logr.LogSink { return l }
