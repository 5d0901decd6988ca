<?php
usleep((int) ($_GET['ms'] ?? 0) * 1000);
echo "generation=", getenv('SUPERVISORD_GENERATION'), "\n";
