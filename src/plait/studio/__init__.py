"""Studio: web pages made of what inspection found."""
