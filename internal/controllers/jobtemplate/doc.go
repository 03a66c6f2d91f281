// Package jobtemplate keeps the list of Jobs in the status of each JobTemplate of
// flow.volcano.sh (docs/spec/jobflow.md): those that were made from it and exist.
package jobtemplate
