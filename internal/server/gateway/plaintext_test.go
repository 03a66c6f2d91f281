package gateway

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

func TestValidateBroker_RequiresTLSOrLoopback(t *testing.T) {
	for _, row := range []struct {
		url  string
		want string // part of the error; if empty, none
	}{
		{"mqtts://broker:8883", ""}, {"ssl://broker:8883", ""}, {"tls://broker:8883", ""}, {"tcps://broker:8883", ""},
		{"mqtt+ssl://broker:8883", ""}, {"wss://broker/mqtt", ""},
		{"mqtt://127.0.0.1:1883", ""}, {"mqtt://127.8.9.1:1883", ""}, {"mqtt://[::1]:1883", ""}, {"ws://localhost/mqtt", ""},
		{"mqtt://broker:1883", "without TLS"}, {"tcp://10.0.0.7:1883", "without TLS"}, {"ws://broker/mqtt", "without TLS"},
		{"mqtt://localhost.example.com:1883", "without TLS"}, {"mqtt://127.0.0.1.example.com:1883", "without TLS"},
		{"mqtt://0.0.0.0:1883", "without TLS"}, {"//broker:1883", "without TLS"}, {"anything://broker:1883", "without TLS"},
		{"mqtt://me:secret@broker:1883", "me:xxxxx@broker"},
		{"broker:1883", "must look like mqtts://host:8883"}, {"", "must look like mqtts://host:8883"},
	} {
		err := Config{MQTTURL: row.url}.ValidateBroker()
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.url, err, row.want)
		}
		if row.want == "without TLS" {
			if err := (Config{MQTTURL: row.url, AllowPlaintext: true}).ValidateBroker(); err != nil {
				t.Errorf("%s, allowed: %v", row.url, err)
			}
		}
	}
	if _, err := New(Config{MQTTURL: "mqtt://broker:1883"}, Cluster{}, nil, logr.Discard()); err == nil {
		t.Error("New accepts a broker without TLS on another machine")
	}
}
