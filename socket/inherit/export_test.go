package inherit

// Parse is FromEnvironment without looking at the descriptors.
var Parse = parse
