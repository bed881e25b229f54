// Package arch holds the rules that the code of this module keeps: who may import whom, and the house rules that a
// compiler does not know. They run as tests; a failure names the package, what it does and the rule.
//
// The table of imports is in rules.go. A new package that no line of it covers fails until it is given a place.
package arch
