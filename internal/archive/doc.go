// Package archive keeps the history of jobs, task groups, tasks and their attempts, flows and
// robots in SQL: on SQLite in a file, or on PostgreSQL. Both use the same statements.
//
// Readers of an archive file can read every manifest in it. Queries take the namespaces that
// their caller may see.
package archive
