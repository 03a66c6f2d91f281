// Package logapi serves what tasks write, over HTTPS:
//
//	GET /v1/namespaces/{namespace}/tasks/{task}/logs
//
// Who may `get` the subresource log of tasks in a namespace may read there. A
// request that follows reads the store by offset and is only woken when there is
// more, so a slow reader holds up nobody, neither other readers nor the robots
// (docs/spec/logs-api.md).
package logapi
