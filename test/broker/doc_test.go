// Package broker_test checks the permissions of the embedded broker and of Mosquitto
// with one matrix: which client may publish, subscribe, leave a will or retain.
package broker_test
