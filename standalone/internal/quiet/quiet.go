// Package quiet keeps the API server's etcd client from writing to the user's
// terminal. That client makes its logger while packages are initialised, from a
// variable, and is asked by nobody where to write. This package imports little,
// so that it is initialised before; import it for its effect.
package quiet

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	// Nothing is lost: the API server logs what the client fails to do.
	logutil.DefaultZapLoggerConfig.OutputPaths = []string{"/dev/null"}
}
