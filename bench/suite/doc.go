// Package suite runs every benchmark of the repository, one after the other, each as processes with a time limit, and
// keeps what they say in one folder: raw output by part, and an index that names the revision, the machine, the
// settings that matter, and how each part went.
package suite
