package server

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/internal/program"
)

// Main runs k8s4r-server and returns its exit status, as program.Main does.
func Main(args []string, stdout, stderr io.Writer) int {
	var cfg Config
	return program.Program{
		Name:     "k8s4r-server",
		Scheme:   Scheme(),
		Cache:    cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		AddFlags: func(f *pflag.FlagSet) { addFlags(f, &cfg) },
		Validate: func() error { return validate(cfg) },
		Add:      func(mgr ctrl.Manager) error { return Add(mgr, cfg) },
	}.Main(args, stdout, stderr)
}

func addFlags(f *pflag.FlagSet, c *Config) {
	f.StringVar(&c.MQTTURL, "mqtt-url", "mqtt://127.0.0.1:1883", "MQTT broker, such as mqtt://host:1883")
	f.StringVar(&c.ClientID, "mqtt-client-id", "k8s4r-server", "client id at the broker; the same for all servers of a cluster, because only one speaks at a time")
	f.StringVar(&c.RobotNamespace, "robot-namespace", "default", "namespace that the Robots of robots that register are created in")
	f.DurationVar(&c.OfflineAfter, "offline-after", 5*time.Minute, "how long a robot may be silent before it is Offline; the same as the manager's. Less than three heartbeats, 90s, calls robots lost that are not")
}

func validate(c Config) error {
	if c.OfflineAfter <= 0 {
		return fmt.Errorf("--offline-after=%s: must be more than nothing", c.OfflineAfter)
	}
	return nil
}
