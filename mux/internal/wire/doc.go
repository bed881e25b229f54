// Package wire is the record layer of the lane protocol: headers, bodies, limits. It imports the standard library only
// and holds no state; docs/wire.md is its specification, and its golden vectors stand in testdata.
package wire
