// Package console implements k8s4r-console: a REST API with its OpenAPI document, a stream of
// events, and the web app.
//
// Reads are served from a watch cache (internal/console/watch) and the archive. They contain only
// what the caller may list or get according to the API server (internal/platform/access). Changes
// are sent to the API server with the caller's credentials, so that RBAC and audit logs apply.
// The console has no data of its own.
package console
