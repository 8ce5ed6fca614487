"""Share, copy or refuse: the rules and the machinery of conversions, without any library."""
