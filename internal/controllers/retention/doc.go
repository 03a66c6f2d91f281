// Package retention deletes finished jobs, flows and vcjobs that have reached the age limit of
// their namespace or exceed its count limit. It works on one namespace at a time.
package retention
