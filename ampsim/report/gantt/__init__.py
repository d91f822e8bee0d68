"""Gantt charts: who works on which instance, and when, as a picture and as a page of HTML."""
