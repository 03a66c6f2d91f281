// Package broker_test asks the embedded broker and the real Mosquitto the same
// question some thousand times: may this one say, hear, leave or retain that?
package broker_test
