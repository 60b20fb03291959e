"""Pictures as numbers: places of boxes, arrows and marks, which templates draw as SVG.

Internal: no module here is public.
"""
