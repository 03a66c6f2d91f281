// Package quiet keeps the API server's etcd client from writing to the user's terminal. The client
// creates its logger during package initialization, from a variable, and offers no option for the
// output. This package imports little, so that it is initialized first; import it for its effect.
package quiet

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	// Nothing is lost: the API server logs the errors of the client.
	logutil.DefaultZapLoggerConfig.OutputPaths = []string{"/dev/null"}
}
