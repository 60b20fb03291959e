"""Lowering: streams are cut into sub-topologies at repartition and table topics."""
