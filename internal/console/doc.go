// Package console is k8s4r-console: what people see and steer by in a browser. It serves a
// REST API with its OpenAPI document, the stream of events, and the web app.
//
// Reads are answered out of one watched world (internal/events) and the archive, and hold
// only what the caller may list or get, as the API server says (internal/access). Changes go
// to the API server with the credentials of the caller, so that RBAC and audit stay the one
// path. It keeps nothing of its own.
package console
