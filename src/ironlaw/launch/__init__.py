"""Between plans and the launch arguments of training stacks: text -> options. Nothing here is executed."""
