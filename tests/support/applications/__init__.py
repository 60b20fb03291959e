"""Applications under test, their functions, inputs and stores."""
