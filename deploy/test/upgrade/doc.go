// Package upgrade replaces the processes of a cluster one at a time under load, by those of another commit.
package upgrade
