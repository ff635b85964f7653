"""What ranks send each other: tensor parallel, context parallel, sharded data parallel, and experts beside computation."""
