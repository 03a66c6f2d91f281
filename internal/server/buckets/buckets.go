// Package buckets links the kinds of buckets that --log-bucket can name. Each has
// its weight (docs/explanation/adr/0012-logs.md), and S3 is what most speak; a program that
// keeps logs in files leaves this package out.
package buckets

import (
	_ "gocloud.dev/blob/fileblob" // file://
	_ "gocloud.dev/blob/s3blob"   // s3://, also of others than Amazon by ?endpoint=
)
