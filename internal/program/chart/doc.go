// Package chart draws the plots of run reports and of the analysis as SVG: lines, steps and dots over linear,
// logarithmic and percentile axes, and bars. A plot is text without scripts; its colours come from CSS, so that it
// follows the reader's light or dark setting. All text is escaped.
package chart

import _ "embed"

// CSS holds the classes that plots use, and their colours for light and dark. A page that embeds plots includes it
// once; a plot's File has it inside.
//
//go:embed chart.css
var CSS string
