// Package settings tries the settings of plane, runtime and build one at a time: a short load with the setting changed
// beside the same load with the default, in pairs that follow one another, over every plane that the setting has an
// effect on. What comes out is the ratio of CPU for each response.
package settings
