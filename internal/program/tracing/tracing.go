// Package tracing makes OpenTelemetry spans of the programs' requests and sends them by OTLP over HTTP. It is off
// unless an endpoint is named; every type's nil value traces nothing, so callers need not ask.
//
// A frontend's request has a span of its own, below it "route", "deliver", "first record" (of each attempt) and
// "stream". The context of "deliver" goes with the request, so that the worker's span is in the same trace.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/internal/program/seldom"
)

// The standard's own variables, which name an endpoint where the flag does not. The exporter reads others too: headers,
// timeout, certificate.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envSampler        = "OTEL_TRACES_SAMPLER"
)

// flushTimeout bounds how long Close may take to send what is left.
const flushTimeout = 5 * time.Second

// Flags are the declared flags.
type Flags struct {
	endpoint *redact.URL
	ratio    *float64
}

// Register declares them.
func Register(app *cli.App) *Flags {
	g := app.Group("Traces")
	return &Flags{
		endpoint: g.URL("otlp-endpoint", "", "URL",
			"where OpenTelemetry traces go, by OTLP over HTTP: http://HOST:4318; when empty, "+envEndpoint+
				", and without that no traces are made",
			func(s string) error {
				_, err := parseEndpoint(s)
				return err
			}),
		ratio: g.Float("trace-ratio", 1, cli.Range(0.0, 1.0),
			"share of the requests that are traced, of those that bring no trace context which decides; "+envSampler+
				" beats it"),
	}
}

// Config returns the values after parsing. Service is the name in the traces.
func (f *Flags) Config(service, instance string) Config {
	return Config{Endpoint: *f.endpoint, Ratio: *f.ratio, Service: service, Instance: instance}
}

// Config of a Tracer.
type Config struct {
	Endpoint          redact.URL   // empty: the environment's; none there: no tracing
	Ratio             float64      // share of requests without a trace context that are traced, 0 to 1
	Service, Instance string       // the program, and the process
	Logger            *slog.Logger // told of what could not be sent; nil = nobody
}

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct {
	log      *slog.Logger
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	context  propagation.TraceContext
}

// New returns nil when no endpoint is named. It does not wait for the endpoint: what cannot be sent is dropped and
// logged.
func New(ctx context.Context, cfg Config) (*Tracer, error) {
	var opts []otlptracehttp.Option
	if !cfg.Endpoint.Empty() {
		u, err := parseEndpoint(cfg.Endpoint.Whole())
		if err != nil {
			return nil, fmt.Errorf("--otlp-endpoint %s: %w", cfg.Endpoint, err)
		}
		opts = append(opts, otlptracehttp.WithEndpointURL(u))
	} else if os.Getenv(envEndpoint) == "" && os.Getenv(envTracesEndpoint) == "" {
		return nil, nil
	}
	cfg.Logger = seldom.Logger(cfg.Logger)
	// before the exporter reads the variables; there is one tracer in a process
	otel.SetLogger(logr.New(library{cfg.Logger}))
	exporter, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", redact.Error(err))
	}
	own := resource.NewSchemaless(attribute.String("service.name", "laneway-"+cfg.Service),
		attribute.String("service.instance.id", cfg.Instance))
	res, err := resource.Merge(own, resource.Environment()) // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES beat ours
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), exporter.Shutdown(ctx))
	}
	provider := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)}
	if os.Getenv(envSampler) == "" {
		provider = append(provider, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Ratio))))
	}
	// The exporter tells its errors here only.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		cfg.Logger.Warn("traces cannot be sent", "error",
			redact.Error(err))
	}))
	t := &Tracer{log: cfg.Logger, provider: sdktrace.NewTracerProvider(provider...)}
	t.tracer = t.provider.Tracer("github.com/laneway-ai/laneway")
	return t, nil
}

// parseEndpoint checks an endpoint and returns it with the path where traces go, as OTEL_EXPORTER_OTLP_ENDPOINT is
// read.
func parseEndpoint(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("is not the URL of an OTLP endpoint, expected something like http://collector:4318")
	}
	if !strings.HasSuffix(u.Path, "/v1/traces") {
		u = u.JoinPath("v1", "traces")
	}
	return u.String(), nil
}

// Close sends what is left, for at most 5 s. Traces that are lost are logged; a program does not fail for them.
// Idempotent.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("traces were lost", "error", redact.Error(err))
	}
}
