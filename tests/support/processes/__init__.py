"""Processes under test: started, waited for, and found if they are left behind."""
