// Package logapi serves the logs of tasks over HTTPS: GET
// /v1/namespaces/{namespace}/tasks/{task}/logs, and the runs of those that their robots have restarted:
// .../runs. It requires the verb get for the
// subresource tasks/log. A request with follow reads the store by offset and is only
// notified of changes, so a slow reader delays neither other readers nor robots.
package logapi
