"""What each technique of an engine buys: switched off and on, on work where it should help and where not."""
