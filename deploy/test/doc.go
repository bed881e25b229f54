// Package deploytest is the module of tests of deploy/: what is rendered, parsed and scraped here is held against the
// real programs. Some tests need root; without it they skip with the reason, with CI=true they fail.
package deploytest
