// Package buckets links the bucket drivers that --log-bucket supports. Drivers are large
// (docs/explanation/adr/0012-logs.md), and most object stores support S3. A program that stores logs
// only in files does not import it.
package buckets

import (
	_ "gocloud.dev/blob/fileblob" // file://
	_ "gocloud.dev/blob/s3blob"   // s3://, for other stores than Amazon's with ?endpoint=
)
