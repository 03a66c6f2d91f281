// Package tracing sends what becomes of tasks to a collector of OpenTelemetry, as spans. It
// decides nothing: package traceparent says which span is which, and who has seen something
// begin and end records it.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/version"
)

// Config says where spans go.
type Config struct {
	// Endpoint of the collector, such as http://collector:4318. Empty: what the environment
	// says (OTEL_EXPORTER_OTLP_ENDPOINT); nothing there: no spans are made.
	Endpoint string
	// Share of the tasks that are traced, from 0 to 1.
	Share float64
}

// AddFlags adds the flags of a program that traces.
func (c *Config) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Endpoint, "otlp-endpoint", "", "collector of OpenTelemetry that gets traces of tasks by OTLP over HTTP, such as http://collector:4318; empty: $OTEL_EXPORTER_OTLP_ENDPOINT, and without that none are made")
	f.Float64Var(&c.Share, "trace-share", 1, "share of the tasks that are traced, from 0 to 1; the same for all programs")
}

// Validate refuses what makes no sense, by the name of the flag.
func (c *Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.Endpoint); c.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, fmt.Errorf("--otlp-endpoint=%s: must be http://host:port or https://host:port", c.Endpoint))
	}
	if c.Share < 0 || c.Share > 1 || c.Share != c.Share {
		errs = append(errs, fmt.Errorf("--trace-share=%g: must be between 0, for none, and 1, for all", c.Share))
	}
	return errors.Join(errs...)
}

// on tells whether there is anybody who wants spans.
func (c *Config) on() bool {
	return c.Share > 0 && cmp.Or(c.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) != ""
}

// Tracer records spans. A nil one does nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	share    float64
}

// closePatience is how long the last spans have to reach the collector.
const closePatience = 3 * time.Second

// Open returns the tracer of a program, or nil if nobody wants spans. A collector that is down
// delays nobody: what it does not take is dropped, which the log says now and then.
func Open(c Config, program string, log logr.Logger) (*Tracer, error) {
	if !c.on() {
		return nil, nil
	}
	var options []otlptracehttp.Option
	if c.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(c.Endpoint, "/")+"/v1/traces"))
	}
	// It connects with the first span.
	exporter, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	from, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithAttributes(
		attribute.String("service.name", program), attribute.String("service.namespace", "k8s4r"), attribute.String("service.version", version.Version)))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: log, now: time.Now})
	return New(c.Share, sdktrace.WithBatcher(exporter), sdktrace.WithResource(from)), nil
}

// New returns a tracer that hands its spans to what the options name.
func New(share float64, options ...sdktrace.TracerProviderOption) *Tracer {
	options = append(options, sdktrace.WithIDGenerator(given{}), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	p := sdktrace.NewTracerProvider(options...)
	return &Tracer{provider: p, tracer: p.Tracer("k8s4r.io/k8s4r"), share: share}
}

// Close sends what is left.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// NeedLeaderElection tells that a tracer closes with any program, be it one that stands by.
func (*Tracer) NeedLeaderElection() bool { return false }

// Start waits for the end of the program, and sends what is left. What is recorded later is lost.
func (t *Tracer) Start(ctx context.Context) error {
	<-ctx.Done()
	return t.Close()
}

// Keeps tells whether the trace of a task is kept.
func (t *Tracer) Keeps(c traceparent.Context) bool { return t != nil && c.Kept(t.share) }

// Span is something that began and has ended.
type Span struct {
	Name string
	// At is the span's own place, Parent that of the one above. Zero: it is the topmost.
	At, Parent traceparent.Context
	Kind       trace.SpanKind
	Start, End time.Time
	// Failed says why it did not come to a good end. Empty: it did.
	Failed     string
	Attributes []attribute.KeyValue
}

// Record takes spans in. It never waits.
func (t *Tracer) Record(spans ...Span) {
	for _, s := range spans {
		if t.Keeps(s.At) {
			t.record(s)
		}
	}
}

func (t *Tracer) record(s Span) {
	ctx := context.WithValue(context.Background(), idKey{}, s.At)
	if s.Parent.Trace != [16]byte{} {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: s.Parent.Trace, SpanID: s.Parent.Span, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	if s.End.Before(s.Start) {
		s.End = s.Start // two clocks
	}
	_, span := t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(s.Kind), trace.WithAttributes(s.Attributes...))
	if s.Failed != "" {
		span.SetStatus(codes.Error, s.Failed)
	}
	span.End(trace.WithTimestamp(s.End))
}

// given hands the SDK the ids that a span has already.
type given struct{}

type idKey struct{}

// NewIDs implements sdktrace.IDGenerator.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	at, _ := ctx.Value(idKey{}).(traceparent.Context)
	return at.Trace, at.Span
}

// NewSpanID implements sdktrace.IDGenerator.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	at, _ := ctx.Value(idKey{}).(traceparent.Context)
	return at.Span
}

// complainEvery is the time between two lines about a collector that takes nothing.
const complainEvery = time.Minute

// complaints are what OpenTelemetry has to say of its own trouble.
type complaints struct {
	log logr.Logger
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.last) >= complainEvery {
		c.last = now
		c.log.Info("traces are lost", "reason", err.Error())
	}
}
