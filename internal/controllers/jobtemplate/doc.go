// Package jobtemplate lists in the status of each JobTemplate of flow.volcano.sh the
// existing Jobs that were created from it (docs/reference/kinds/jobflow.md).
package jobtemplate
