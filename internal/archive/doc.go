// Package archive keeps the history of jobs, task groups, tasks and their attempts, flows
// and robots in SQL, for as long as its owner wants: on SQLite in a file, or on PostgreSQL.
// One text of each statement serves both.
//
// Whoever may read an archive reads every manifest in it. The queries take the namespaces
// that their reader may see.
package archive
