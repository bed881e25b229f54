package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo gives the etcd client a logger that writes to log. The client's warnings are about requests whose errors this
// package handles and reports itself, so they count as debug here; only its errors stay errors.
func zapTo(log *slog.Logger) *zap.Logger { return zap.New(&slogCore{log: log}) }

type slogCore struct{ log *slog.Logger }

func slogLevel(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelError
	}
	return slog.LevelDebug
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return l > zapcore.DebugLevel && c.log.Enabled(context.Background(), slogLevel(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{log: slog.New(c.log.Handler().WithAttrs(attrs(fields)))}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.LogAttrs(context.Background(), slogLevel(e.Level), "etcd client: "+e.Message, attrs(fields)...)
	return nil
}

func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
	}
	for k, v := range enc.Fields {
		out = append(out, slog.Any(k, v))
	}
	return out
}
