"""What a recipe would cost on a pod of IPUs, estimated before anything is compiled."""
