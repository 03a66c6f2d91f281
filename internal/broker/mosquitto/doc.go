// Package mosquitto has Mosquitto (2.0 or newer) keep the rules that the
// embedded broker keeps: its configuration, and the words by which its dynamic
// security plugin learns of robots that come and go.
//
// A robot proves itself by its certificate, whose common name is its user name
// and its client id, whatever it says itself. The plugin holds a client and a
// role for each robot; one that it does not know may connect, and do nothing.
package mosquitto
