package controlplane

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/grpclog"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"k8s4r.io/k8s4r/standalone/internal/logfile"
)

type logFiles struct {
	etcd *zap.Logger
}

// redirectLogs writes the logs of Kubernetes and etcd to files instead of the terminal. Only a
// fatal error of Kubernetes, which exits the process, is also written to the terminal.
func redirectLogs(dir string) (logFiles, error) {
	kubernetes, err := logfile.Open(filepath.Join(dir, "kubernetes.log"))
	if err != nil {
		return logFiles{}, err
	}
	if err := redirectKlog(kubernetes); err != nil {
		return logFiles{}, err
	}
	// Each embedded program configures the logging of the process; the second one would fail to
	// start.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, kubernetes))

	etcd, err := logfile.Open(filepath.Join(dir, "etcd.log"))
	if err != nil {
		return logFiles{}, err
	}
	return logFiles{etcd: newZap(etcd)}, nil
}

func redirectKlog(w io.Writer) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr":     "false",
		"stderrthreshold": "FATAL",
		"one_output":      "true",
	} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("klog: %w", err)
		}
	}
	klog.SetOutput(w)
	return nil
}

func newZap(w io.Writer) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(w), zap.WarnLevel))
}
