"""Requests, scheduling, steps, sampling and the loop. Talks to a Runner and knows no device."""
