// Package tracing sends spans of tasks to an OpenTelemetry collector. Package protocol/trace
// defines the ids of spans; the program that observes the start and the end of something records
// its span.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
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

	"k8s4r.io/k8s4r/internal/platform/limits"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/version"
)

// Config says where spans are sent.
type Config struct {
	// Endpoint of the collector, such as http://collector:4318. Empty:
	// $OTEL_EXPORTER_OTLP_ENDPOINT; without that no spans are made.
	Endpoint string
	// SampleRatio is the share of tasks that are traced, from 0 to 1.
	SampleRatio float64
}

// AddFlags adds the flags of a program that traces.
func (c *Config) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Endpoint, "otlp-endpoint", "", "OpenTelemetry collector for the traces of tasks, by OTLP over HTTP, such as http://collector:4318; empty: $OTEL_EXPORTER_OTLP_ENDPOINT; if that is not set, no traces are recorded")
	f.Float64Var(&c.SampleRatio, "trace-sample-ratio", 1, "fraction of the tasks that are traced, from 0 to 1; must be the same for all programs")
}

// Validate returns an error that names the flag for each invalid value.
func (c *Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.Endpoint); c.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, fmt.Errorf("--otlp-endpoint=%s: must be http://host:port or https://host:port", c.Endpoint))
	}
	if c.SampleRatio < 0 || c.SampleRatio > 1 || c.SampleRatio != c.SampleRatio {
		errs = append(errs, fmt.Errorf("--trace-sample-ratio=%g: must be from 0 (none) to 1 (all)", c.SampleRatio))
	}
	return errors.Join(errs...)
}

// isEnabled reports whether spans are made.
func (c *Config) isEnabled() bool {
	return c.SampleRatio > 0 && cmp.Or(c.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) != ""
}

// Tracer records spans. A nil one does nothing.
type Tracer struct {
	provider    *sdktrace.TracerProvider
	tracer      trace.Tracer
	sampleRatio float64
}

// closeTimeout bounds the sending of the last spans.
const closeTimeout = 3 * time.Second

// Open returns the tracer of a program, or nil if tracing is disabled. A collector that is down
// delays nothing: spans that it does not take are dropped, which is logged at most once a minute.
func Open(c Config, program string, log logr.Logger) (*Tracer, error) {
	if !c.isEnabled() {
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
	otel.SetErrorHandler(newErrorLog(log, time.Now))
	return New(c.SampleRatio, sdktrace.WithBatcher(exporter), sdktrace.WithResource(from)), nil
}

// New returns a tracer that sends its spans where the options say.
func New(share float64, options ...sdktrace.TracerProviderOption) *Tracer {
	options = append(options, sdktrace.WithIDGenerator(fixedIDs{}), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	p := sdktrace.NewTracerProvider(options...)
	return &Tracer{provider: p, tracer: p.Tracer("k8s4r.io/k8s4r"), sampleRatio: share}
}

// Close sends the remaining spans.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// NeedLeaderElection returns false: an instance that stands by closes its tracer, too.
func (*Tracer) NeedLeaderElection() bool { return false }

// Start waits for the end of the program and sends the remaining spans. Later spans are lost.
func (t *Tracer) Start(ctx context.Context) error {
	<-ctx.Done()
	return t.Close()
}

// IsSampled reports whether the trace of a task is recorded.
func (t *Tracer) IsSampled(c traceparent.Context) bool { return t != nil && c.IsSampled(t.sampleRatio) }

// Span is something that has started and ended.
type Span struct {
	Name string
	// At is the context of the span, Parent that of its parent. Zero: it is the root.
	At, Parent traceparent.Context
	Kind       trace.SpanKind
	Start, End time.Time
	// Failed says why it failed. Empty: it succeeded.
	Failed     string
	Attributes []attribute.KeyValue
}

// Record sends spans. It never blocks.
func (t *Tracer) Record(spans ...Span) {
	for _, s := range spans {
		if t.IsSampled(s.At) {
			t.recordSpan(s)
		}
	}
}

func (t *Tracer) recordSpan(s Span) {
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

// fixedIDs passes the ids that a span already has to the SDK.
type fixedIDs struct{}

type idKey struct{}

// NewIDs implements sdktrace.IDGenerator.
func (fixedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	at, _ := ctx.Value(idKey{}).(traceparent.Context)
	return at.Trace, at.Span
}

// NewSpanID implements sdktrace.IDGenerator.
func (fixedIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	at, _ := ctx.Value(idKey{}).(traceparent.Context)
	return at.Span
}

// errorLog logs that the collector takes no spans, at most once per interval.
type errorLog struct {
	log      logr.Logger
	now      func() time.Time
	interval limits.Interval
}

func newErrorLog(log logr.Logger, now func() time.Time) *errorLog {
	return &errorLog{log: log, now: now, interval: limits.Interval{Period: time.Minute}}
}

// Handle implements otel.ErrorHandler.
func (l *errorLog) Handle(err error) {
	if l.interval.Allow("", l.now()) {
		l.log.Info("traces are lost", "reason", err.Error())
	}
}
